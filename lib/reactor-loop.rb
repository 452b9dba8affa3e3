# frozen_string_literal: true

require_relative "reactor" # Bundler requires a file with the gem's name, reactor-loop
