#!/bin/sh
#SBATCH -G 2
sleep 1
