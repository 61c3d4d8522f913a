#!/bin/sh
#SBATCH --exclusive
sleep 1
