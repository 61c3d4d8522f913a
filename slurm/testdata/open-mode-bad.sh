#!/bin/sh
#SBATCH --open-mode=new
sleep 1
