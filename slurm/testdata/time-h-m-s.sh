#!/bin/sh
#SBATCH --time=1:02:03
sleep 1
