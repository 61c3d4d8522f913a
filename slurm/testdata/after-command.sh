#!/bin/sh
#SBATCH -n 2
true
#SBATCH -n 5
sleep 1
