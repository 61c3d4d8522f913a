#!/bin/sh
#SBATCH --gpus-per-task=1
sleep 1
