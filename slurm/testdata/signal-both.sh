#!/bin/sh
#SBATCH --signal=RB:12@5
sleep 1
