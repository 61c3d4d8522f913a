#!/bin/sh
#SBATCH -t 5
#SBATCH -t 8
sleep 1
