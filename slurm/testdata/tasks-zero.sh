#!/bin/sh
#SBATCH -n 0
sleep 1
