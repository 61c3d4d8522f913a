#!/bin/sh
#SBATCH --mem=99G
sleep 1
