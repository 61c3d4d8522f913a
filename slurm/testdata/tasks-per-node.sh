#!/bin/sh
#SBATCH --ntasks-per-node=4
sleep 1
