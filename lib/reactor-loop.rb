# frozen_string_literal: true

require_relative "reactor" # the gem's name is reactor-loop, and Bundler requires that
