#!/bin/sh
#SBATCH --time=infinite
sleep 1
