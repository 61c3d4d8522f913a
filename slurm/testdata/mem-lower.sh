#!/bin/sh
#SBATCH --mem=2g
sleep 1
