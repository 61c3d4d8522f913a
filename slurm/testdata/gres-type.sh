#!/bin/sh
#SBATCH --gres=gpu:h100:2
sleep 1
