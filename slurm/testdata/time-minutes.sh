#!/bin/sh
#SBATCH --time=90
sleep 1
