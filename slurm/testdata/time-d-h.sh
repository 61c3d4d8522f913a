#!/bin/sh
#SBATCH --time=1-2
sleep 1
