#!/bin/sh
# a comment

   # indented
#SBATCH -n 3

#SBATCH -t 7
sleep 1
