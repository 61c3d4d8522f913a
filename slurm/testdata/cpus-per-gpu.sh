#!/bin/sh
#SBATCH -G 2 --cpus-per-gpu=4
sleep 1
