#!/bin/sh
#SBATCH --time=1-2:30:40
sleep 1
