#!/bin/sh
#SBATCH -G 2 --gres=gpu:2
sleep 1
