#!/bin/sh
  #SBATCH -n 4
#SBATCH -t 9
sleep 1
