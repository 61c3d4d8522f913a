#!/bin/sh
#SBATCH -n 4 --gpus-per-task=1
sleep 1
