#!/bin/sh
#SBATCH --nice=50
sleep 1
