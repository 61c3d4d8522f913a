#!/bin/sh
#SBATCH --time=1-2:30
sleep 1
