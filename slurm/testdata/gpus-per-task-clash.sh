#!/bin/sh
#SBATCH --gpus=4 -n 3 --gpus-per-task=2
sleep 1
