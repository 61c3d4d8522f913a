#!/bin/sh
#SBATCH --gpus-per-node=h100:2 -N 1
sleep 1
