#!/bin/sh
#SBATCH --comment="for ann"
sleep 1
