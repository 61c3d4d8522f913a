#!/bin/sh
#SBATCH --job-name=train
sleep 1
