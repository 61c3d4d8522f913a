#!/bin/sh
#SBATCH --time=-5
sleep 1
