#!/bin/sh
#SBATCH --time=1.5
sleep 1
