#!/bin/sh
#SBATCH --nice
sleep 1
