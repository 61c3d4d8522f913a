#!/bin/sh
#SBATCH -n 4 --ntasks-per-node=2
sleep 1
