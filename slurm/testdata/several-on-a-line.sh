#!/bin/sh
#SBATCH -n 2 -c 3 --time=10
sleep 1
