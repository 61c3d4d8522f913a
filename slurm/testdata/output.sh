#!/bin/sh
#SBATCH -o out-%j.txt -e err-%j.txt
sleep 1
