#!/bin/sh
#SBATCH -n 4 -c 2
sleep 1
