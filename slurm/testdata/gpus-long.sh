#!/bin/sh
#SBATCH --gpus=h100:3
sleep 1
