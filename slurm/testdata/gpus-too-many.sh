#!/bin/sh
#SBATCH --gpus=9
sleep 1
