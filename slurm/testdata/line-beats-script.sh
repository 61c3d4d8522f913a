#!/bin/sh
# args: -t 6
#SBATCH -t 5 -n 2
sleep 1
