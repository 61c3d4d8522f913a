#!/bin/sh
#SBATCH --gres=none
sleep 1
