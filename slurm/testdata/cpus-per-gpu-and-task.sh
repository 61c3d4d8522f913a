#!/bin/sh
#SBATCH -G 2 --cpus-per-gpu=4 -c 2
sleep 1
