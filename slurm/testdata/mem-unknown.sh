#!/bin/sh
#SBATCH --mem=4Q
sleep 1
