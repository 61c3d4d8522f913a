#!/bin/sh
#SBATCH --gpus-per-node=2
sleep 1
