#!/bin/sh
#SBATCH -H
sleep 1
