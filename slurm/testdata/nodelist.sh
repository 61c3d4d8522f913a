#!/bin/sh
#SBATCH -w box
sleep 1
