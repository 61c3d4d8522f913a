#!/bin/sh
#SBATCH --gres=gpu:9
sleep 1
