#!/bin/sh
#SBATCH -J a#b
sleep 1
