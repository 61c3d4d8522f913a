#!/bin/sh
#SBATCH -n 8 -O
sleep 1
