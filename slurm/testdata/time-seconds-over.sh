#!/bin/sh
#SBATCH --time=0:61
sleep 1
