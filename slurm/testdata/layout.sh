#!/bin/sh
#SBATCH --ntasks-per-core=1 --hint=nomultithread --distribution=block
sleep 1
