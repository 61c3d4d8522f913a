#!/bin/sh
#SBATCH -G 2 --mem-per-gpu=2G
sleep 1
