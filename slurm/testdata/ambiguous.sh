#!/bin/sh
#SBATCH --cpus-per=4
sleep 1
